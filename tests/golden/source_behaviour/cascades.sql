-- replicate owner
-- replicate owned
-- setup
CREATE TABLE owner (id int PRIMARY KEY, v text);
CREATE TABLE owned (id int PRIMARY KEY, owner int REFERENCES owner ON DELETE CASCADE ON UPDATE CASCADE, spare int REFERENCES owner ON DELETE SET NULL ON UPDATE CASCADE);
INSERT INTO owner SELECT g, 'o' FROM generate_series(1, 20) g;
INSERT INTO owned SELECT g, g % 20 + 1, (g + 7) % 20 + 1 FROM generate_series(1, 200) g;
-- workload
DELETE FROM owner WHERE id = 3;
-- wait
UPDATE owner SET id = id + 1000 WHERE id IN (5, 6);

BEGIN;
UPDATE owner SET id = 1 + 2000 WHERE id = 1;
DELETE FROM owner WHERE id = 2001;
COMMIT;
