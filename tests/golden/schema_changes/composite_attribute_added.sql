-- A type made of others gets a part more: rows that are there look different from then on, and none is written.
-- replicate t
-- replicate deep
-- setup
CREATE TYPE place AS (street text, number int);
CREATE TYPE trip AS (name text, stops place[]);
CREATE TABLE t (id int PRIMARY KEY, p place);
CREATE TABLE deep (id int PRIMARY KEY, trips trip[]);
INSERT INTO t VALUES (1, ROW('Road', 5));
INSERT INTO deep VALUES (1, ARRAY[ROW('home', ARRAY[ROW('Road', 5)::place])::trip]);
-- workload
ALTER TYPE place ADD ATTRIBUTE town text;
-- wait
INSERT INTO t VALUES (2, ROW('Lane', 6, 'Town'));
-- expected t: live
--   id | p
--   1  | (Road,5,)
--   2  | (Lane,6,Town)
-- history t:
--   reloading: table_structure_changed
-- expected deep: live
--   id | trips
--   1  | {"(home,\"{\"\"(Road,5,)\"\"}\")"}
-- history deep:
--   reloading: table_structure_changed
