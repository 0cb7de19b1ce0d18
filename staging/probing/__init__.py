"""What the parts can do, measured, and what bound a staging."""
