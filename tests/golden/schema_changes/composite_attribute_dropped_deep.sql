-- A composite type gets an attribute, where columns hold it by way of domains.
-- replicate a
-- replicate b
-- setup
CREATE TYPE place AS (street text, number int);
CREATE DOMAIN places AS place[];
CREATE DOMAIN pd AS place;
CREATE DOMAIN pdd AS pd;
CREATE TABLE a (id int PRIMARY KEY, c places);
CREATE TABLE b (id int PRIMARY KEY, c pdd);
INSERT INTO a VALUES (1, ARRAY[ROW('Road', 5)::place]);
INSERT INTO b VALUES (1, ROW('Road', 5));
-- workload
ALTER TYPE place DROP ATTRIBUTE number;
-- wait
INSERT INTO a VALUES (2, ARRAY[ROW('Lane')::place]);
-- expected a: live
--   id | c
--   1  | {(Road)}
--   2  | {(Lane)}
-- history a:
--   reloading: table_structure_changed
-- expected b: live
--   id | c
--   1  | (Road)
-- history b:
--   reloading: table_structure_changed
