"""Studies: policies x loads x seeds from one file, cell by cell, resumable, compared seed by seed."""
