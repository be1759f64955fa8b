-- The table's owner takes its identity away.
-- replicate t
-- setup
CREATE TABLE t (id int PRIMARY KEY, v text);
INSERT INTO t VALUES (1, 'one');
-- workload
ALTER TABLE t REPLICA IDENTITY NOTHING;
-- wait
INSERT INTO t VALUES (2, 'not followed');
-- expected t: parked table_no_identity
--   id | v
--   1  | one
-- history t:
--   parked: table_no_identity
