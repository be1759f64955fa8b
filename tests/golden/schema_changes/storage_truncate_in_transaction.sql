-- Rows, a truncate, a change and rows again in one transaction.
-- replicate t
-- setup
CREATE TABLE t (id int PRIMARY KEY, v text);
INSERT INTO t VALUES (1, 'one'), (2, 'two');
-- workload
BEGIN;
INSERT INTO t VALUES (3, 'before');
ALTER TABLE t ADD COLUMN n int DEFAULT 5;
INSERT INTO t VALUES (4, 'between', 4);
TRUNCATE t;
ALTER TABLE t DROP COLUMN v;
INSERT INTO t VALUES (5, 55);
COMMIT;
-- expected t: live
--   id | n
--   5  | 55
-- history t:
--   column n was added
--   column v was dropped
