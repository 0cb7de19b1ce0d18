"""Climate segmentation after DeepCAM: tropical cyclones and atmospheric rivers in global climate fields."""

from hpcbench.application import Application

application = Application(
    name="deepcam",
    title="Segmentation of extreme weather in global climate fields",
    benchmark="deepcam",
    package=__name__,
)
