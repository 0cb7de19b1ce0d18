"""What a destination records about itself: manifest, journal, lock; cleaning and verifying by these records."""
