-- What ended jobs and calls came to, for /metrics: every ending adds rows in its own transaction, and
-- whoever reads sums them up and now and then puts the sums in their place. No row is ever updated, so
-- that jobs which end at the same time do not wait for each other.

CREATE TABLE IF NOT EXISTS meters (
    name text NOT NULL,                 -- of a row of cudaops/service/meters.py
    labels json NOT NULL DEFAULT '{}',
    value double precision NOT NULL
);
