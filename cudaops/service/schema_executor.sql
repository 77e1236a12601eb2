-- Calls of executors elsewhere (`--executor remote`) and the contents that they are about. Contents
-- are kept for their owner alone: nobody learns from an answer what somebody else has sent.

CREATE TABLE IF NOT EXISTS calls (
    owner text NOT NULL,
    id uuid NOT NULL,                   -- made by the client: sent again, it is the same call
    target text NOT NULL,               -- `cpu`, `cuda:NVIDIA H200`: which workers can do it
    request json NOT NULL,
    request_sha256 text NOT NULL,
    status text NOT NULL DEFAULT 'queued' CHECK (status IN ('queued', 'running', 'ended')),
    created_at timestamptz NOT NULL DEFAULT now(),
    queued_at timestamptz NOT NULL DEFAULT now(),  -- again where what ran it has died
    asked_at timestamptz NOT NULL DEFAULT now(),   -- when its client last asked for it
    started_at timestamptz,
    ended_at timestamptz,
    attempts integer NOT NULL DEFAULT 0,
    lease uuid,
    lease_until timestamptz,
    worker text,
    reply json,
    problem json,
    PRIMARY KEY (owner, id),
    CHECK ((status = 'running') = (lease IS NOT NULL)),
    CHECK ((status = 'ended') = (ended_at IS NOT NULL)),
    CHECK ((status = 'ended') = (reply IS NOT NULL OR problem IS NOT NULL))
);
ALTER TABLE calls ADD COLUMN IF NOT EXISTS queued_at timestamptz NOT NULL DEFAULT now();
CREATE INDEX IF NOT EXISTS calls_open ON calls (created_at) WHERE status IN ('queued', 'running');
CREATE INDEX IF NOT EXISTS calls_ended ON calls (ended_at) WHERE status = 'ended';

-- Not logged: they can be sent or made again, and the protocol asks for what has gone. Both vanish
-- together where the server of the database crashes.
CREATE UNLOGGED TABLE IF NOT EXISTS blobs (
    owner text NOT NULL,
    sha256 text NOT NULL,
    size_bytes bigint NOT NULL,
    used_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (owner, sha256)
);
CREATE INDEX IF NOT EXISTS blobs_used ON blobs (used_at);

CREATE UNLOGGED TABLE IF NOT EXISTS blob_chunks (
    owner text NOT NULL,
    sha256 text NOT NULL,
    number integer NOT NULL,
    content bytea STORAGE EXTERNAL NOT NULL,       -- floats do not compress
    PRIMARY KEY (owner, sha256, number),
    FOREIGN KEY (owner, sha256) REFERENCES blobs (owner, sha256) ON DELETE CASCADE
);

CREATE TABLE IF NOT EXISTS executor_hosts (
    name text PRIMARY KEY,
    places json NOT NULL,               -- what it offers: `Place` records
    version text NOT NULL,
    seen_at timestamptz NOT NULL DEFAULT now()
);
