-- An array's elements lose their limit.
-- replicate t
-- setup
CREATE TABLE t (id int PRIMARY KEY, tags varchar(5)[]);
INSERT INTO t VALUES (1, '{a,"b c",NULL}');
-- workload
ALTER TABLE t ALTER tags TYPE text[];
INSERT INTO t VALUES (2, '{longer than five}');
-- expected t: live
--   id | tags
--   1  | {a,"b c",NULL}
--   2  | {"longer than five"}
-- history t:
--   reloading: table_structure_changed
