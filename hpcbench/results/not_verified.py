"""The notice beside every score that MLCommons has not verified, as its rules for results require."""

NOT_VERIFIED = "Result not verified by MLCommons Association"
