"""The page that people look at, in `static`: files that a browser takes as they are, without a build step."""
