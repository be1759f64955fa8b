-- Parts of a type made of others get other names: its values print as before.
-- replicate t
-- setup
CREATE TYPE place AS (street text, number int);
CREATE TABLE t (id int PRIMARY KEY, p place);
INSERT INTO t VALUES (1, ROW('Road', 5));
-- workload
ALTER TYPE place RENAME ATTRIBUTE number TO house;
INSERT INTO t VALUES (2, ROW('Lane', 6));
-- expected t: live
--   id | p
--   1  | (Road,5)
--   2  | (Lane,6)
-- history t: none
