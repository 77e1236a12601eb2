-- Knowledge: notes cut into chunks. Vectors of each embedding model stand in a table of their own,
-- embeddings_<models.id>, created by the store with that model's dimension, so that two models
-- never mix. Runs with the schema of the same name first in the search path.

CREATE TABLE IF NOT EXISTS facts (      -- 'chunks', 'house': passages of all, of our own
    name text PRIMARY KEY,
    value text NOT NULL
);

CREATE OR REPLACE FUNCTION plain(text) RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN translate($1, './-_:<>', '       ');  -- so that `cp.async.bulk` is three words

CREATE TABLE IF NOT EXISTS notes (
    id text PRIMARY KEY,
    origin text NOT NULL,               -- 'builtin', or the absolute path that a user added
    kind text NOT NULL,                 -- 'bottleneck', 'technique', 'reference' or 'document'
    source text NOT NULL,               -- 'notes', 'documents' or a project: 'flashinfer'
    weight real NOT NULL,               -- factor of its scores, by source
    title text NOT NULL,
    subtypes text[] NOT NULL,
    tags text[] NOT NULL,
    sources text[] NOT NULL,
    body text NOT NULL,
    sha256 text NOT NULL
);
CREATE INDEX IF NOT EXISTS notes_origin ON notes (origin);
CREATE INDEX IF NOT EXISTS notes_of_house ON notes (id) WHERE kind <> 'document';
CREATE INDEX IF NOT EXISTS notes_on_subtypes ON notes (id) WHERE subtypes <> '{}';

CREATE TABLE IF NOT EXISTS chunks (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    note text NOT NULL REFERENCES notes (id) ON DELETE CASCADE,
    position integer NOT NULL,
    heading text NOT NULL,
    body text NOT NULL,
    asked text NOT NULL DEFAULT '',     -- what people ask that it answers, for the searches
    subject text NOT NULL,              -- title, subtypes and tags of the note, for the text search
    terms tsvector NOT NULL GENERATED ALWAYS AS (
        setweight(to_tsvector('english', plain(heading)), 'A')
        || setweight(to_tsvector('english', plain(subject)), 'B')
        || setweight(to_tsvector('english', plain(asked)), 'C')
        || setweight(to_tsvector('english', plain(body)), 'D')
    ) STORED,
    UNIQUE (note, position)
);
CREATE INDEX IF NOT EXISTS chunks_terms ON chunks USING gin (terms);

CREATE TABLE IF NOT EXISTS words (      -- of all passages: how rare each is
    word text PRIMARY KEY,
    chunks integer NOT NULL,
    house integer NOT NULL DEFAULT 0    -- of our own notes' passages
);

CREATE TABLE IF NOT EXISTS models (
    id integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name text NOT NULL UNIQUE,
    dimension integer NOT NULL
);
