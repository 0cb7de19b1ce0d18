"""What optimisation brings: every option alone and those that help together, against a plain baseline."""
