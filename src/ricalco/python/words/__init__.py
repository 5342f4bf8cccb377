"""What errors about traced values say; loaded when one is raised."""
