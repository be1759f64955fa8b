-- A part of a type made of others is dropped, and rows come with the change.
-- replicate t
-- replicate many
-- setup
CREATE TYPE place AS (street text, number int, town text);
CREATE DOMAIN known_place AS place CHECK ((VALUE).street <> '');
CREATE TABLE t (id int PRIMARY KEY, p place);
CREATE TABLE many (id int PRIMARY KEY, p place[]);
INSERT INTO t VALUES (1, ROW('Road', 5, 'Town'));
INSERT INTO many VALUES (1, ARRAY[ROW('Road', 5, 'Town')::place, NULL]);
-- workload
ALTER TYPE place DROP ATTRIBUTE number;
INSERT INTO t VALUES (2, ROW('Lane', 'Town'));
-- wait
INSERT INTO many VALUES (2, ARRAY[ROW('Lane', 'Town')::place]);
-- expected t: live
--   id | p
--   1  | (Road,Town)
--   2  | (Lane,Town)
-- history t:
--   reloading: table_structure_changed
-- expected many: live
--   id | p
--   1  | {"(Road,Town)",NULL}
--   2  | {"(Lane,Town)"}
-- history many:
--   reloading: table_structure_changed
