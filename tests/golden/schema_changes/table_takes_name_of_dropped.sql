-- A replicated table is dropped, and another one gets its name: what stands under a name counts, and the other is missing.
-- replicate a
-- replicate b
-- setup
CREATE TABLE a (id int PRIMARY KEY, v text);
CREATE TABLE b (id int PRIMARY KEY, v text);
INSERT INTO a VALUES (1, 'was in a');
INSERT INTO b VALUES (2, 'was in b');
-- workload
DROP TABLE a;
ALTER TABLE b RENAME TO a;
-- wait
INSERT INTO a VALUES (3, 'into a');
-- expected a: live
--   id | v
--   2  | was in b
--   3  | into a
-- history a:
--   reloading: table_structure_changed
-- expected b: parked table_missing
--   id | v
--   2  | was in b
-- history b:
--   parked: table_missing
