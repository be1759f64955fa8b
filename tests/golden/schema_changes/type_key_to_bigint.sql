-- The key gets a larger type.
-- replicate t
-- setup
CREATE TABLE t (id int PRIMARY KEY, v text);
INSERT INTO t VALUES (1, 'one'), (2, 'two');
-- workload
ALTER TABLE t ALTER id TYPE bigint;
INSERT INTO t VALUES (9007199254740993, 'large');
DELETE FROM t WHERE id = 1;
-- expected t: live
--   id               | v
--   2                | two
--   9007199254740993 | large
-- history t:
--   reloading: table_structure_changed
