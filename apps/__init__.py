"""The scientific applications, one package each."""
