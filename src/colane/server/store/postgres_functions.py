"""What a store in Postgres consists of: tables, and the function by which a commit is one round trip.

`head` has one row, which each commit locks: commits are made one after the other, each as a whole or not at all. Texts
compare by their bytes (collation "C"), which is the order that stores promise. The function's name has the number of
its form: schedulers of two versions may use one database, each in its own schema or after the other.
"""

from __future__ import annotations

from typing import Final

from colane.server.store.store import COLLECTIONS

TABLES: Final = """
CREATE TABLE head (
    one boolean PRIMARY KEY DEFAULT true CHECK (one),
    schema integer NOT NULL,
    id text NOT NULL,
    events bigint NOT NULL,
    version bigint NOT NULL
);
CREATE TABLE documents (
    collection text COLLATE "C" NOT NULL,
    key text COLLATE "C" NOT NULL,
    body text NOT NULL,
    checksum bigint NOT NULL,
    PRIMARY KEY (collection, key)
);
CREATE TABLE audit (
    number bigint PRIMARY KEY,
    body text NOT NULL,
    checksum bigint NOT NULL
);
"""

COUNTS: Final = f"""
CREATE TABLE IF NOT EXISTS counts (collection text COLLATE "C" PRIMARY KEY, records bigint NOT NULL);
INSERT INTO counts SELECT name, 0 FROM unnest('{{{",".join(COLLECTIONS)}}}'::text[]) AS name ON CONFLICT DO NOTHING;
ALTER TABLE head ADD COLUMN IF NOT EXISTS counted text;
"""  # noqa: S608 - names of ours
"""How many records each collection has, and at which event and version that was counted. A scheduler of before counts
none: what it has left is counted anew by the next commit. All rows are there from the start: a full disk has room for
their changes."""

FUNCTION: Final = """
CREATE OR REPLACE FUNCTION colane_commit_2(
    its_id text, its_epoch bigint, its_events bigint, its_version bigint, clears text[],
    delete_collections text[], delete_keys text[],
    put_collections text[], put_keys text[], put_bodies text[], put_checksums bigint[],
    lines text[], line_checksums bigint[]
) RETURNS TABLE (word text, number bigint) LANGUAGE plpgsql AS $$
DECLARE
    known head%ROWTYPE;
    newest bigint;
BEGIN
    SELECT * INTO known FROM head FOR UPDATE;
    IF NOT FOUND OR known.id <> its_id THEN
        RETURN QUERY SELECT 'gone', 0::bigint;
        RETURN;
    END IF;
    IF its_epoch IS NOT NULL THEN
        SELECT coalesce(max(d.key), '0')::bigint INTO newest FROM documents d WHERE d.collection = 'epochs';
        IF newest <> its_epoch THEN
            RETURN QUERY SELECT 'epoch', newest;
            RETURN;
        END IF;
    END IF;
    IF its_events <> known.events THEN
        RETURN QUERY SELECT 'events', known.events;
        RETURN;
    END IF;
    IF its_version <> known.version THEN
        RETURN QUERY SELECT 'version', known.version;
        RETURN;
    END IF;
    IF known.counted IS DISTINCT FROM known.events || ':' || known.version THEN
        UPDATE counts c SET records = (SELECT count(*) FROM documents d WHERE d.collection = c.collection);
    END IF;
    IF cardinality(clears) > 0 THEN
        DELETE FROM documents d WHERE d.collection = ANY (clears);
        UPDATE counts c SET records = 0 WHERE c.collection = ANY (clears);
    END IF;
    IF cardinality(delete_keys) > 0 THEN
        WITH gone AS (
            DELETE FROM documents d USING unnest(delete_collections, delete_keys) AS away(collection, key)
            WHERE d.collection = away.collection AND d.key = away.key RETURNING d.collection
        )
        UPDATE counts c SET records = c.records - lost.records
        FROM (SELECT g.collection, count(*) AS records FROM gone g GROUP BY 1) AS lost
        WHERE c.collection = lost.collection;
    END IF;
    -- xmax is 0 of a row that was not there before.
    WITH written AS (
        INSERT INTO documents SELECT * FROM unnest(put_collections, put_keys, put_bodies, put_checksums)
        ON CONFLICT (collection, key) DO UPDATE SET body = excluded.body, checksum = excluded.checksum
        RETURNING documents.collection, documents.xmax = 0 AS is_new
    )
    UPDATE counts c SET records = c.records + new.records
    FROM (SELECT w.collection, count(*) AS records FROM written w WHERE w.is_new GROUP BY 1) AS new
    WHERE c.collection = new.collection;
    INSERT INTO audit SELECT known.events + line.place, line.body, line.checksum
    FROM unnest(lines, line_checksums) WITH ORDINALITY AS line(body, checksum, place);
    UPDATE head SET
        events = known.events + cardinality(lines),
        version = known.version + (its_version IS NOT NULL)::integer,
        counted = known.events + cardinality(lines) || ':' || known.version + (its_version IS NOT NULL)::integer;
    RETURN QUERY SELECT 'made', known.events + cardinality(lines);
END
$$;
"""

CALL: Final = (
    "SELECT word, number FROM colane_commit_2(%s::text, %s::bigint, %s::bigint, %s::bigint, %s::text[], %s::text[], "
    "%s::text[], %s::text[], %s::text[], %b::text[], %s::bigint[], %b::text[], %s::bigint[])"
)
"""Documents and lines go as they are: written as text, each quotation mark of an array would be escaped, in Python."""
