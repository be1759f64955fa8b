-- A column is renamed, and a new one gets its old name: what was in it moves with the renamed one.
-- replicate t
-- setup
CREATE TABLE t (id int PRIMARY KEY, v text);
INSERT INTO t VALUES (1, 'one'), (2, 'two');
-- workload
BEGIN;
ALTER TABLE t RENAME v TO old;
ALTER TABLE t ADD COLUMN v text DEFAULT 'new';
COMMIT;
-- wait
INSERT INTO t VALUES (3, 'o', 'n');
-- expected t: live
--   id | old | v
--   1  | one | new
--   2  | two | new
--   3  | o   | n
-- history t:
--   column v is named old now
--   column v was added
