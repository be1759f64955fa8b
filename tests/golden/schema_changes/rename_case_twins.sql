-- A second column comes whose name differs in case only: DuckDB cannot hold both, PostgreSQL can.
-- replicate t
-- setup
CREATE TABLE t (id int PRIMARY KEY, v text);
INSERT INTO t VALUES (1, 'one');
-- workload
ALTER TABLE t ADD COLUMN "V" int DEFAULT 0;
INSERT INTO t VALUES (2, 'two', 2);
-- expected t: live
--   id | v   | V
--   1  | one | 0
--   2  | two | 2
-- history t:
--   column V was added
-- expected t on duckdb: parked table_name_collision
--   id | v
--   1  | one
-- history t:
--   parked: table_name_collision
