-- A column is renamed, a new one gets its old name, and rows come before and behind.
-- replicate t
-- setup
CREATE TABLE t (id int PRIMARY KEY, v text);
INSERT INTO t VALUES (1, 'one'), (2, 'two');
-- workload
BEGIN;
INSERT INTO t VALUES (3, 'before');
ALTER TABLE t RENAME v TO old;
ALTER TABLE t ADD COLUMN v text DEFAULT 'new';
INSERT INTO t VALUES (4, 'o', 'n');
UPDATE t SET v = 'n1' WHERE id = 1;
COMMIT;
-- expected t: live
--   id | old    | v
--   1  | one    | n1
--   2  | two    | new
--   3  | before | new
--   4  | o      | n
-- history t:
--   reloading: table_structure_changed
