"""What optimisation gains: every option alone, and together those that help, against a plain baseline."""
