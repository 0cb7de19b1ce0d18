"""What tests draw in place of figures."""


def empty_svg(figure: object, name: str) -> str:
    """The frame of a figure and nothing in it, as ``hpcbench.results.style.svg`` would return it."""
    return "<svg></svg>"
