-- The key keeps its type and gets other values.
-- replicate t
-- setup
CREATE TABLE t (id int PRIMARY KEY, v text);
INSERT INTO t VALUES (1, 'one'), (2, 'two');
-- workload
ALTER TABLE t ALTER id TYPE int USING id + 100;
INSERT INTO t VALUES (1, 'another one');
-- expected t: live
--   id  | v
--   1   | another one
--   101 | one
--   102 | two
-- history t:
--   reloading: table_structure_changed
