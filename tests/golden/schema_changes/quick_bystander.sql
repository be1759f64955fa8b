-- One table has to be copied anew and another changed with it is followed: neither holds the other up.
-- replicate a
-- replicate b
-- setup
CREATE TABLE a (id int PRIMARY KEY, n int);
CREATE TABLE b (id int PRIMARY KEY, v text);
INSERT INTO a VALUES (1, 1);
INSERT INTO b VALUES (1, 'one');
-- workload
BEGIN;
ALTER TABLE a ALTER n TYPE bigint USING n + 1;
ALTER TABLE b ADD COLUMN n int DEFAULT 5;
INSERT INTO a VALUES (2, 2);
INSERT INTO b VALUES (2, 'two', 2);
COMMIT;
-- expected a: live
--   id | n
--   1  | 2
--   2  | 2
-- history a:
--   reloading: table_structure_changed
-- expected b: live
--   id | v   | n
--   1  | one | 5
--   2  | two | 2
-- history b:
--   column n was added
