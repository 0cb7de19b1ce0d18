"""What stands beside every score that MLCommons has not verified, by its rules for results."""

NOT_VERIFIED = "Result not verified by MLCommons Association"
