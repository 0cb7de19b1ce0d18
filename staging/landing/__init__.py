"""Where bytes become files: sinks, transforms, archives."""
