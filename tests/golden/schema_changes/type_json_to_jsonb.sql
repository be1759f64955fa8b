-- A document is stored in another form: keys and blanks change.
-- replicate t
-- setup
CREATE TABLE t (id int PRIMARY KEY, doc json);
INSERT INTO t VALUES (1, '{"b":1,  "a":2, "a":3}');
-- workload
ALTER TABLE t ALTER doc TYPE jsonb;
INSERT INTO t VALUES (2, '{"z":1,"y":2}');
-- expected t: live
--   id | doc
--   1  | {"a": 3, "b": 1}
--   2  | {"y": 2, "z": 1}
-- history t:
--   reloading: table_structure_changed
