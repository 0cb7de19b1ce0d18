"""Plans who reads what and where it lands."""
