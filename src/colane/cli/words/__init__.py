"""Words of the command line: help, mistakes, other systems' words, pages written from the source."""
