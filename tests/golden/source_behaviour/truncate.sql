-- replicate parent
-- replicate child
-- replicate apart
-- setup
CREATE TABLE parent (id int PRIMARY KEY, label text);
CREATE TABLE child (id int PRIMARY KEY, parent int REFERENCES parent ON DELETE CASCADE);
CREATE TABLE apart (id serial PRIMARY KEY, label text);
INSERT INTO parent SELECT g, 'p' FROM generate_series(1, 50) g;
INSERT INTO child SELECT g, g % 50 + 1 FROM generate_series(1, 200) g;
INSERT INTO apart (label) SELECT 'a' FROM generate_series(1, 30);
-- workload
BEGIN;
TRUNCATE parent CASCADE;
ROLLBACK;

BEGIN;
INSERT INTO apart (label) VALUES ('before');
TRUNCATE apart;
INSERT INTO apart (label) VALUES ('after');
COMMIT;
-- wait
TRUNCATE parent CASCADE;

INSERT INTO parent VALUES (1, 'again');
INSERT INTO child VALUES (1, 1), (2, 1);
-- wait
INSERT INTO child VALUES (3, 1);
UPDATE parent SET label = 'then cleared';
TRUNCATE parent, child, apart RESTART IDENTITY;
INSERT INTO parent VALUES (7, 'new');
INSERT INTO child VALUES (7, 7);
INSERT INTO apart (label) VALUES ('first');

TRUNCATE apart;

BEGIN;
INSERT INTO apart (label) VALUES ('kept');
SAVEPOINT s;
TRUNCATE apart;
INSERT INTO apart (label) VALUES ('undone');
ROLLBACK TO s;
COMMIT;
