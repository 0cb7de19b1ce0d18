"""The pages of what may be imported; mkdocstrings puts signatures and docstrings in."""

from __future__ import annotations

FOLDER = "reference/python"
TOPICS = {
    "applications": (
        "Applications",
        "What an application is made of. [Your own model](../../docs/your-own-model.md) puts one together.",
        ("hpcbench.application.Application", "hpcbench.train.task.Task", "hpcbench.config.bounds.within",
         "hpcbench.data.sample_size.SampleSize"),
    ),
    "measurements": (
        "Measurements",
        "What watches the steps of a training.",
        ("hpcbench.train.observers.StepObserver", "hpcbench.train.observers.StepInfo"),
    ),
    "results": (
        "Results",
        "Reading run folders. [Results](../../docs/results.md) has the command, and the columns of its table.",
        ("hpcbench.results.records.load_runs", "hpcbench.results.records.read_run", "hpcbench.results.records.Run",
         "hpcbench.results.summary.Summary"),
    ),
    "analysis": (
        "Joint analysis",
        "The published records as tables, and the time of an entry as a product of factors. "
        "[Joint analysis](../../docs/analysis.md) has the command. "
        "[A notebook](../../docs/notebooks/README.md) uses them.",
        ("hpcbench.mlperf.published.published_runs", "hpcbench.mlperf.runs_table.runs_frame",
         "hpcbench.analysis.entry_runs.entries_of_runs", "hpcbench.analysis.entry_runs.EntryRuns",
         "hpcbench.analysis.decomposition.factors", "hpcbench.analysis.decomposition.decompose",
         "hpcbench.analysis.decomposition.Decomposition", "hpcbench.analysis.decomposition.Term"),
    ),
    "plots": (
        "Plots",
        "How the suite's plots look, for figures beside them. `hpcbench.results.style` also has colours by name, "
        "those of series in order (`SERIES`), and the inches of a full figure (`WIDTH`). "
        "[Notebooks](../../docs/notebooks/README.md) use them.",
        ("hpcbench.results.style.settings", "hpcbench.results.style.styled", "hpcbench.results.style.canvas",
         "hpcbench.results.style.save"),
    ),
    "staging": (
        "Staging",
        "Bringing a dataset to the nodes from Python. [Staging](../../docs/staging.md) has the command.",
        ("staging.stage.stage", "staging.options.StageOptions", "staging.report.StagingReport",
         "staging.files.list_samples"),
    ),
    "errors": (
        "Errors",
        "What is raised for bad input, each in one line that says what to change.",
        ("staging.errors.InputError", "staging.errors.DataError"),
    ),
}  # fmt: skip
"""Name of each page: its title, what it is about, and the objects on it."""


def python_pages() -> dict[str, str]:
    """Path to text of every page, the list of all first."""
    rows = [f"| [{title}]({name}.md) | {about} |" for name, (title, about, _) in TOPICS.items()]
    table = "\n".join(["| page | about |", "|---|---|", *rows])
    first = f"# Python\n\nWhat other packages may import; anything else may change without notice.\n\n{table}\n"
    return {f"{FOLDER}/index.md": first} | {f"{FOLDER}/{name}.md": python_page(name) for name in TOPICS}


def python_page(name: str) -> str:
    """The page of a topic."""
    title, about, objects = TOPICS[name]
    return "\n\n".join([f"# {title}", about, *(f"::: {each}" for each in objects)]) + "\n"
