"""The science: one package per application."""
