"""When jobs will start and end, with intervals that hold: drawn, widened by what came of earlier quotes, and judged."""
