-- replicate large
-- setup
CREATE TABLE large (id int PRIMARY KEY, n int, big text, raw bytea);
ALTER TABLE large ALTER big SET STORAGE EXTERNAL;
ALTER TABLE large ALTER raw SET STORAGE EXTERNAL;
INSERT INTO large SELECT g, g, repeat(md5(g::text), 300), decode(repeat(md5(g::text), 300), 'hex') FROM generate_series(1, 30) g;
-- workload
UPDATE large SET n = n + 1;
-- wait
UPDATE large SET n = n + 1 WHERE id < 10;

UPDATE large SET big = repeat('new', 4000) WHERE id = 1;
UPDATE large SET n = -1 WHERE id = 1;
UPDATE large SET raw = NULL WHERE id = 1;
UPDATE large SET n = -2 WHERE id = 1;

INSERT INTO large VALUES (100, 0, repeat('fresh', 3000), repeat('b', 9000)::bytea);
UPDATE large SET n = 1 WHERE id = 100;
UPDATE large SET n = 2 WHERE id = 100;

DELETE FROM large WHERE id = 2;
INSERT INTO large VALUES (2, 0, 'small now', 'x');
UPDATE large SET n = 9 WHERE id = 2;

BEGIN;
UPDATE large SET big = repeat('undone', 2000) WHERE id = 3;
SAVEPOINT s;
UPDATE large SET raw = repeat('u', 9000)::bytea WHERE id = 3;
ROLLBACK TO s;
UPDATE large SET n = 5 WHERE id = 3;
COMMIT;
