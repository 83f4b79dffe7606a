"""What would become of jobs if they were submitted now: asked of a copy of the live core, which changes nothing."""
