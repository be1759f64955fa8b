-- The default is the time of the change: the rows from before all have that one, and another one comes with each later row.
-- replicate t
-- setup
CREATE TABLE t (id int PRIMARY KEY, v text);
INSERT INTO t VALUES (1, 'one'), (2, 'two');
-- workload
ALTER TABLE t ADD COLUMN at timestamptz DEFAULT now();
-- wait
INSERT INTO t (id, v) VALUES (3, 'three');
-- wait
UPDATE t SET v = (SELECT count(DISTINCT at)::text FROM t);

ALTER TABLE t DROP COLUMN at;
-- expected t: live
--   id | v
--   1  | 2
--   2  | 2
--   3  | 2
-- history t:
--   column at was added
--   column at was dropped
