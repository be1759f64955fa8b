-- A new partition is created where columns have defaults and checks: nothing tells it from one that was attached full.
-- replicate t
-- setup
CREATE TABLE t (id bigserial PRIMARY KEY, v text NOT NULL DEFAULT 'none', n int CHECK (n > 0), at timestamptz DEFAULT '2020-01-01+00') PARTITION BY RANGE (id);
CREATE TABLE t_1 PARTITION OF t FOR VALUES FROM (0) TO (10);
CREATE INDEX ON t (v);
INSERT INTO t (v, n) VALUES ('one', 1);
-- workload
CREATE TABLE t_2 PARTITION OF t FOR VALUES FROM (10) TO (20);
-- wait
INSERT INTO t (id, v, n) VALUES (11, 'eleven', 11);
-- expected t: live
--   id | v      | n  | at
--   1  | one    | 1  | 2020-01-01 00:00:00+00
--   11 | eleven | 11 | 2020-01-01 00:00:00+00
-- history t:
--   reloading: table_partitions_changed
