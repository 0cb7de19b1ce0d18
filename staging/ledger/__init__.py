"""What a destination knows of itself: manifest, journal, lock; cleaning and verifying by it."""
