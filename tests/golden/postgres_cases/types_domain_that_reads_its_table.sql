-- A domain whose check looks at the rows of the table: the copy must not have to pass it.
-- replicate rising
-- setup
SET check_function_bodies = off;
CREATE FUNCTION above_all(int) RETURNS bool LANGUAGE sql
  AS 'SELECT $1 > coalesce(max(n), 0) FROM types_domain_that_reads_its_table.rising';
CREATE DOMAIN more AS int CHECK (above_all(VALUE));
CREATE TABLE rising (id serial PRIMARY KEY, n more);
INSERT INTO rising (n) VALUES (10);
-- workload
INSERT INTO rising (n) VALUES (11);

INSERT INTO rising (n) VALUES (15);
-- wait
UPDATE rising SET n = 20 WHERE n = 11;
DELETE FROM rising WHERE n = 10;
