-- Text becomes an enum.
-- replicate t
-- setup
CREATE TYPE mood AS ENUM ('sad', 'happy');
CREATE TABLE t (id int PRIMARY KEY, m text);
INSERT INTO t VALUES (1, 'sad'), (2, 'happy');
-- workload
ALTER TABLE t ALTER m TYPE mood USING m::mood;
-- wait
INSERT INTO t VALUES (3, 'happy');
-- expected t: live
--   id | m
--   1  | sad
--   2  | happy
--   3  | happy
-- history t:
--   reloading: table_structure_changed
