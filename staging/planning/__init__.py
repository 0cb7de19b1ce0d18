"""Who reads what and where it lands."""
