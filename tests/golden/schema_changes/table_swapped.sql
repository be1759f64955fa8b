-- Two replicated tables swap their names: each place on the target holds what stands under its name.
-- replicate a
-- replicate b
-- setup
CREATE TABLE a (id int PRIMARY KEY, v text);
CREATE TABLE b (id int PRIMARY KEY, v text);
INSERT INTO a VALUES (1, 'was in a');
INSERT INTO b VALUES (2, 'was in b');
-- workload
BEGIN;
ALTER TABLE a RENAME TO x;
ALTER TABLE b RENAME TO a;
ALTER TABLE x RENAME TO b;
COMMIT;
-- wait
INSERT INTO a VALUES (3, 'into a');
INSERT INTO b VALUES (4, 'into b');
-- expected a: live
--   id | v
--   2  | was in b
--   3  | into a
-- history a:
--   reloading: table_structure_changed
-- expected b: live
--   id | v
--   1  | was in a
--   4  | into b
-- history b:
--   reloading: table_structure_changed
