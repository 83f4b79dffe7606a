"""The REST API: who asks, what may be asked, every route, and every answer that is not what was asked for."""
