-- The service's own tables; procrastinate's stand in a schema of their own. Runs with the schema
-- `cudaops_service` first in the search path. `jobs` is the truth; the queue only delivers.
-- Records are `json`, not `jsonb`: a program may print a NUL, which jsonb refuses.

CREATE TABLE IF NOT EXISTS facts (
    name text PRIMARY KEY,
    value text NOT NULL
);

CREATE TABLE IF NOT EXISTS jobs (
    id uuid PRIMARY KEY,
    kind text NOT NULL,
    status text NOT NULL CHECK (status IN ('queued', 'running', 'succeeded', 'failed', 'cancelled')),
    request json NOT NULL,
    filename text NOT NULL,             -- this and the next two stand in the request as well
    kernel text,
    executor text NOT NULL,
    owner text NOT NULL,
    idempotency_key text,
    request_sha256 text NOT NULL,
    trace text,                         -- traceparent of the request that started it (W3C Trace Context)
    created_at timestamptz NOT NULL DEFAULT now(),
    started_at timestamptz,
    ended_at timestamptz,
    attempts integer NOT NULL DEFAULT 0,
    losses integer NOT NULL DEFAULT 0,  -- attempts that ended with their worker or its child dead
    lease uuid,                         -- of the worker that is at it; only its holder may end the job
    lease_until timestamptz,
    worker text,
    cancel_requested boolean NOT NULL DEFAULT false,
    result json,
    problem json,
    outcome text,
    run_id text,
    CHECK ((status IN ('succeeded', 'failed', 'cancelled')) = (ended_at IS NOT NULL)),
    CHECK ((status = 'running') = (lease IS NOT NULL))
);
CREATE UNIQUE INDEX IF NOT EXISTS jobs_idempotency ON jobs (owner, idempotency_key)
    WHERE idempotency_key IS NOT NULL;
CREATE INDEX IF NOT EXISTS jobs_created ON jobs (created_at, id);
CREATE INDEX IF NOT EXISTS jobs_owned ON jobs (owner, created_at, id);
CREATE INDEX IF NOT EXISTS jobs_ended ON jobs (ended_at) WHERE ended_at IS NOT NULL;
CREATE INDEX IF NOT EXISTS jobs_open ON jobs (status, lease_until)
    WHERE status IN ('queued', 'running');

CREATE TABLE IF NOT EXISTS events (
    job uuid NOT NULL REFERENCES jobs (id) ON DELETE CASCADE,
    seq integer NOT NULL,
    event json NOT NULL,
    PRIMARY KEY (job, seq)
);

CREATE TABLE IF NOT EXISTS artefacts (
    job uuid NOT NULL REFERENCES jobs (id) ON DELETE CASCADE,
    name text NOT NULL,
    media_type text NOT NULL,
    sha256 text NOT NULL,
    content bytea NOT NULL,
    PRIMARY KEY (job, name)
);

CREATE TABLE IF NOT EXISTS tokens (
    name text PRIMARY KEY,
    scope text NOT NULL CHECK (scope IN ('read', 'run', 'admin')),
    sha256 text NOT NULL UNIQUE,        -- of the token; the token itself is kept nowhere
    created_at timestamptz NOT NULL DEFAULT now(),
    expires_at timestamptz,
    last_used_at timestamptz
);

CREATE TABLE IF NOT EXISTS audit (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at timestamptz NOT NULL DEFAULT now(),
    actor text NOT NULL,                -- name of the token, or `worker NAME`
    action text NOT NULL,
    job uuid,
    detail json NOT NULL DEFAULT '{}'
);

CREATE TABLE IF NOT EXISTS workers (
    name text PRIMARY KEY,
    executors text[] NOT NULL,
    device text,
    version text NOT NULL,
    seen_at timestamptz NOT NULL DEFAULT now(),
    gauges json NOT NULL DEFAULT '{}'   -- what a worker measures of its machine, by metric name
);

-- Of version 1: single calls of the remote executor.
DROP TABLE IF EXISTS calls, blob_chunks, blobs, executor_hosts;

-- What ended jobs and calls came to, for /metrics: every ending adds rows in its own transaction, and
-- whoever reads sums them up and now and then puts the sums in their place. No row is ever updated, so
-- that jobs which end at the same time do not wait for each other.

CREATE TABLE IF NOT EXISTS meters (
    name text NOT NULL,                 -- of a row of cudaops/service/rows.py
    labels json NOT NULL DEFAULT '{}',
    value double precision NOT NULL
);

-- A batch is a named set of jobs; jobs know nothing of it.

CREATE TABLE IF NOT EXISTS batches (
    id uuid PRIMARY KEY,
    owner text NOT NULL,
    idempotency_key text,
    request_sha256 text NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now()
);
CREATE UNIQUE INDEX IF NOT EXISTS batches_idempotency ON batches (owner, idempotency_key)
    WHERE idempotency_key IS NOT NULL;

CREATE TABLE IF NOT EXISTS batch_jobs (
    batch uuid NOT NULL REFERENCES batches (id) ON DELETE CASCADE,
    position integer NOT NULL,
    job uuid NOT NULL UNIQUE REFERENCES jobs (id) ON DELETE CASCADE,
    figures json,                       -- of the job's run record: what a row says of it (domain/batch.py)
    PRIMARY KEY (batch, position)
);
