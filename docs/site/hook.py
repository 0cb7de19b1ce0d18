"""The site as MkDocs builds it: pages where they lie in the repository, and a reference made from the code."""

from __future__ import annotations

from typing import Any

from command_reference import FOLDER as COMMANDS
from command_reference import command_pages
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from pages import ROOT, linked_files, repository_pages, with_files
from pymdownx.slugs import slugify
from python_reference import FOLDER as PYTHON
from python_reference import python_pages
from settings_reference import PATH as SETTINGS
from settings_reference import settings_page


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Name anchors as GitHub does, and put the pages of generated folders into the navigation."""
    config.mdx_configs.setdefault("toc", {})["slugify"] = slugify(case="lower")
    folders = {f"{COMMANDS}/": overview(command_pages()), f"{PYTHON}/": overview(python_pages())}
    config.nav = [expanded(entry, folders) for entry in config.nav or []]
    return config


def overview(pages: dict[str, str]) -> list[Any]:
    """The navigation of a generated folder, whose first page lists the others."""
    first, *others = pages
    return [{"Overview": first}, *others]


def expanded(entry: Any, folders: dict[str, list[Any]]) -> Any:
    """An entry of the navigation with the pages of a generated folder instead of its path."""
    if isinstance(entry, dict):
        return {title: expanded(value, folders) for title, value in entry.items()}
    if isinstance(entry, list):
        return [expanded(each, folders) for each in entry]
    return folders.get(entry, entry)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages, what they link to, and the reference."""
    found = repository_pages()
    linked = {path for page in found for path in linked_files(page).values()} - set(found)
    for path in (*found, *sorted(linked)):
        files.append(File.generated(config, path, abs_src_path=str(ROOT / path)))
    for path, text in {**command_pages(), **python_pages(), SETTINGS: settings_page()}.items():
        files.append(File.generated(config, path, content=text))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Let links to folders lead to what stands for them, and let a search find texts before attributes of classes."""
    path = page.file.src_uri
    if path.startswith(PYTHON):
        page.meta["search"] = {"boost": 0.2}
    return with_files(markdown, path, linked_files(path)) if (ROOT / path).is_file() else markdown
