-- replicate keyed
-- setup
CREATE TABLE keyed (id int PRIMARY KEY, label text);
INSERT INTO keyed SELECT g, 'row ' || g FROM generate_series(1, 100) g;
-- workload
UPDATE keyed SET id = id + 1000 WHERE id <= 20;

UPDATE keyed SET id = id - 1000, label = 'back' WHERE id BETWEEN 1001 AND 1010;
-- wait
UPDATE keyed SET id = 5000 WHERE id = 30;
UPDATE keyed SET id = 5001 WHERE id = 5000;
UPDATE keyed SET id = 5002, label = 'moved three times' WHERE id = 5001;

UPDATE keyed SET id = 6000 WHERE id = 31;
DELETE FROM keyed WHERE id = 6000;

UPDATE keyed SET id = 7000 WHERE id = 32;
INSERT INTO keyed VALUES (32, 'took the place');

DELETE FROM keyed WHERE id = 33;
UPDATE keyed SET id = 33 WHERE id = 34;

INSERT INTO keyed VALUES (8000, 'new and moved');
UPDATE keyed SET id = 8001 WHERE id = 8000;
UPDATE keyed SET id = id WHERE id = 40;
