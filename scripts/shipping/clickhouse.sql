-- The table for Cuvisor's audit lines, as Fluent Bit inserts them (FORMAT JSONEachRow).
CREATE DATABASE IF NOT EXISTS cuvisor;

CREATE TABLE IF NOT EXISTS cuvisor.events
(
    host LowCardinality(String) DEFAULT '',
    time DateTime64(6, 'UTC'),
    event LowCardinality(String),
    outcome LowCardinality(String),
    pid UInt32,
    ppid UInt32,
    start_time Nullable(UInt64),
    pid_namespace Nullable(UInt64),
    uid UInt32,
    euid UInt32,
    login_uid Nullable(UInt32),
    exe String,
    argv Array(String),
    cwd String,
    container Nullable(String),
    cgroup String,
    pod Nullable(String),
    slurm_job Nullable(String),
    policy LowCardinality(String),
    rule LowCardinality(Nullable(String)),
    result Nullable(Int32),
    request Nullable(String),
    effective Nullable(String),
    caller LowCardinality(Nullable(String)),
    device Tuple(ordinal Nullable(Int32), uuid Nullable(String), pci Nullable(String)),
    devices Array(Tuple(ordinal Int32, uuid Nullable(String), pci Nullable(String))),
    seconds Nullable(Float64),
    dropped UInt32 DEFAULT 0
)
ENGINE = MergeTree
PARTITION BY toYYYYMM(time)
ORDER BY (event, time, host, pid)
TTL toDateTime(time) + INTERVAL 1 YEAR;

-- Who used which GPU in the last week:
--   SELECT device.uuid, uid, exe, count(), min(time), max(time) FROM cuvisor.events
--   WHERE event = 'context' AND time > now() - INTERVAL 7 DAY GROUP BY ALL ORDER BY 4 DESC;
