-- All keys of a table take other values and come back, in transactions of their own and together.
-- replicate serials
-- replicate by_index
-- setup
CREATE TABLE serials (id serial PRIMARY KEY, data int);
CREATE TABLE by_index (id serial UNIQUE NOT NULL, data int);
ALTER TABLE by_index REPLICA IDENTITY USING INDEX by_index_id_key;
INSERT INTO serials (data) VALUES (1), (2), (3);
-- workload
DELETE FROM serials WHERE data = 1;

UPDATE serials SET data = 3 WHERE data = 2;

UPDATE serials SET id = -id;
-- session compare
all keys are negative
-- session a
UPDATE serials SET id = -id;
UPDATE serials SET id = -id;

INSERT INTO by_index (data) VALUES (1), (2), (4);
DELETE FROM by_index WHERE data = 1;
UPDATE by_index SET data = 3 WHERE data = 2;
UPDATE by_index SET id = -id;

BEGIN;
UPDATE by_index SET id = -id;
UPDATE serials SET id = id * 10;
COMMIT;
-- wait
ALTER TABLE serials REPLICA IDENTITY FULL;
UPDATE serials SET id = -id;
DELETE FROM serials WHERE id > 0;
